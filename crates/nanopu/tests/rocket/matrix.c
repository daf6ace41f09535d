static double a[20][20],b[20][20],c[20][20];
int main(void){ for(int i=0;i<20;i++)for(int j=0;j<20;j++){a[i][j]=i*2+j;b[i][j]=i-j*3;} for(int i=0;i<20;i++)for(int j=0;j<20;j++){double s=0;for(int k=0;k<20;k++)s+=a[i][k]*b[k][j];c[i][j]=s;} return c[3][4]>0; }
